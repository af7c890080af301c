"""`python -m ik_sim` is `ik-sim`."""

import sys

from ik_sim.cli import main

sys.exit(main())
