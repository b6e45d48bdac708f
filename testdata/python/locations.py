"""Prints the location tables of every code object of a file, and what Python itself reads in them: `locations.py FILE`.

A code object has a line `code FIRST-LINE TABLE`, the table in hexadecimal, and a line for each run of code units of the
same position: their number, line, last line, column and end of columns.
"""
import itertools
import sys


def show(code):
    print("code", code.co_firstlineno, code.co_linetable.hex())
    for position, run in itertools.groupby(code.co_positions()):
        line, end_line, column, end_column = ("-" if part is None else part for part in position)
        print(len(list(run)), line, end_line, column, end_column)
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            show(constant)


with open(sys.argv[1], encoding="utf-8") as file:
    show(compile(file.read(), sys.argv[1], "exec"))
