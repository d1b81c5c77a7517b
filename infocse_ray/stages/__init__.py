"""Work named by its inputs, done once by one driver, committed last."""
