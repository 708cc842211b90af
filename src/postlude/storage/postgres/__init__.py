"""PostgreSQL.

Every statement stands by name in the `.sql` files, under the same names as for SQLite; `:name` is a parameter, and
"postlude" is the schema.
"""
