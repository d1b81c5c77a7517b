"""`infocse export`, as `ray job submit` runs it."""

import sys

from infocse_ray.commands.export import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], prog="export.py"))
