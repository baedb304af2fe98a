"""The program ``btnkm``: a module per command with ``add_parser`` and ``run``, and ``program``.

Modules import the library only when a command runs, so that ``--help`` is quick.
"""

COMMANDS = {
    "fit": "fit a model to a table and save it",
    "predict": "predict the rows of a table",
    "explain": "print importances and effects, or explain single rows",
    "report": "write an HTML report about a model",
    "evaluate": "cross-validate, also with other methods",
    "info": "print what a model file contains",
    "demo": "fit a small data set and print the results",
    "completion": "print a completion script for your shell",
}
