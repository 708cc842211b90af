"""The statements that run all day long use their indexes, whatever the backlog and however they were planned."""
