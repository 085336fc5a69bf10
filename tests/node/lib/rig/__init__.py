# SPDX-License-Identifier: Apache-2.0
"""The virtual GPU node: the parts it is made of, the scenarios, and the machine that runs them."""
