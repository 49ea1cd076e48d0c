"""What marks a test that needs a cluster and found none."""

NO_CLUSTER = "this machine cannot make a cluster"
