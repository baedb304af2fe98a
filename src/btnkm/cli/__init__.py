"""The program ``btnkm``: a module per command with ``add_parser`` and ``run``, and ``program``.

Modules import the library only when a command runs, so that ``--help`` is quick.
"""

COMMANDS = {
    "fit": "fit a model to a table and save it",
    "predict": "predict the target for the rows of a table",
    "calibrate": "recalibrate the intervals or probabilities of a model by held-out rows",
    "explain": "print how important the inputs are, or explain single rows",
    "report": "write an HTML report about a model",
    "evaluate": "cross-validate a model, and compare it with other methods",
    "info": "describe a model file",
    "demo": "fit a small data set and print the results",
    "completion": "print a completion script for your shell",
}
