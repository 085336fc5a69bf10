/* SPDX-License-Identifier: GPL-2.0 */
/* Config space that shows the IDs of the costumes: a bus's operations for it are replaced by ours. */
#ifndef FERRY_CONFIG_SPACE_H
#define FERRY_CONFIG_SPACE_H

#include <linux/pci.h>

/* From now on reads on @bus show what its functions wear. -ENOMEM, or 0. */
int mask_bus(struct pci_bus *bus);

/* Gives all buses their own operations back and waits for the reads that are under way. */
void unmask_all_buses(void);

#endif
