"""`infocse push`, as `ray job submit` runs it."""

import sys

from infocse_ray.commands.push import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], prog="push.py"))
