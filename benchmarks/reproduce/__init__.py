"""The paper's section 4: its figures and tables, run anew beside what it prints."""
