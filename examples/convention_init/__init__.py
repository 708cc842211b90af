"""A convention is set up by two other services: a saga asks them, and has them undo it when one cannot.

`python -m convention_init` runs everything in one process on the broker `memory://`. As services of their own:

    export POSTLUDE_BROKER=amqp://localhost
    postlude run convention_init.participants:app
    postlude run convention_init.registry:app
"""
