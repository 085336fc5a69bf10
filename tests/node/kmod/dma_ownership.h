/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A driver says once for all of its functions whether the kernel's DMA API is theirs (driver_managed_dma): a
 * group with one that has it cannot go to a VM. Driver nvidia has both kinds, so the bus is asked through us.
 */
#ifndef FERRY_DMA_OWNERSHIP_H
#define FERRY_DMA_OWNERSHIP_H

#include <linux/pci.h>

/* From now on those functions on @driver for which @managed is true leave DMA to a VM; the others do not. -ENOMEM:
 * nothing is watched. */
int watch_dma(struct pci_driver *driver, bool (*managed)(struct pci_dev *pdev));

/* Call once @driver is unregistered. */
void unwatch_dma(void);

#endif
