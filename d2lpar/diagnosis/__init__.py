"""Is a data-parallel training right? A single device and k ranks side by side, and in words what differs."""

from d2lpar.diagnosis.compare import Diagnosis as Diagnosis
from d2lpar.diagnosis.compare import diagnose as diagnose
from d2lpar.diagnosis.feed import check_feed as check_feed
