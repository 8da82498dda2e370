"""Tables as people have them: names, kinds of columns, fits without tuning, questions and answers."""
