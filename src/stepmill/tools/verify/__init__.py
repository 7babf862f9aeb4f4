"""``stepmill.verify``: compares native envs with Gymnasium's own."""

from stepmill.tools.verify.entry import verify
from stepmill.tools.verify.results import Difference, Verification, Verifications

__all__ = ["Difference", "Verification", "Verifications", "verify"]
