"""Every parser of the repository against input that was bent: by hand for long, in the tests for a moment.

python -m tests.fuzz --inputs 100000 --seed 1
"""
