"""What a fit is: its problem and options, what a likelihood does, and the lines of its history."""
