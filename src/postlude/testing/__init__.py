"""What a test needs: a clock to move and the contracts that every adapter passes."""
