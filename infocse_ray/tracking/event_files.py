"""What TensorBoard's files of trainings are called, for those who write and those who read them."""


def file_suffix(stage: str) -> str:
    """What the names of a stage's event files end with.

    Args:
        stage: its folder, relative to the storage.
    """
    return f".{stage.replace('/', '.')}"
