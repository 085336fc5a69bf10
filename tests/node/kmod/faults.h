/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Faults on demand for functions of our PCI driver: writable module parameters fail_probe, hang_probe and
 * hang_remove (README.md).
 */
#ifndef FERRY_FAULTS_H
#define FERRY_FAULTS_H

#include <linux/pci.h>

/* Hangs while hang_probe names @pdev; then the negative errno that fail_probe holds for it, once, or 0. */
int fault_in_probe(struct pci_dev *pdev);

/* Hangs while hang_remove names @pdev. */
void fault_in_remove(struct pci_dev *pdev);

#endif
