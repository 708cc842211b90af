"""SQLite.

Every statement stands by name in the `.sql` files, under the same names as for PostgreSQL. Where PostgreSQL needs one
and SQLite several, the next ones end in _2 and _3 and run in the same transaction.

Lists come as JSON. JSON cannot carry bytes: ids and payloads come end to end in one blob, and the JSON says where each
begins. A fence is a JSON object from lane to epoch. Times are seconds since 1970; `:now` is the store's clock.
"""
