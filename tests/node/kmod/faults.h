/* SPDX-License-Identifier: GPL-2.0 */
/* Faults on demand for functions of our PCI driver, by writable module parameters of these names (README.md). */
#ifndef FERRY_FAULTS_H
#define FERRY_FAULTS_H

#include <linux/pci.h>

/* Hangs while hang_probe names @pdev; then the negative errno that fail_probe holds for it, once, or 0. */
int fault_in_probe(struct pci_dev *pdev);

/* Hangs while hang_remove names @pdev. */
void fault_in_remove(struct pci_dev *pdev);

/* The negative errno that fail_sriov holds for @pdev, once, or 0. */
int fault_in_sriov(struct pci_dev *pdev);

/* True while refuse_lock names @pdev. */
bool fault_in_lock(struct pci_dev *pdev);

#endif
