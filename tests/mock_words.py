"""What the model `mock` says, worked out apart from it."""


def repeated(text: str, num_words: int) -> str:
    """The first words of the prompt's, said again and again."""
    words = text.split()
    return " ".join(words[number % len(words)] for number in range(num_words))
