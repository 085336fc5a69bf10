# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of one node for tests, in namespaces of its own."""
