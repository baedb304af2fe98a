"""The report of a fitted model: one offline page, with a panel that predicts in the browser."""
