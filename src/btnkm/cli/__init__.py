"""The commands of the program, one file each, with ``add_parser(commands)`` and ``run(arguments)``.

A module imports what it works with only when it runs: help and completion come at once.
"""

COMMANDS = {
    "fit": "fit a model to a table and save it",
    "predict": "predict the rows of a table",
    "explain": "tell what a model has found: inputs, effects, single rows",
    "report": "write a page about a model",
    "evaluate": "measure by cross-validation, beside other methods if asked",
    "info": "tell what is in the file of a model",
    "demo": "fit a bundled data set and show what was found",
    "completion": "print a script that completes commands in your shell",
}
