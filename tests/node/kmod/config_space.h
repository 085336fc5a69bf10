/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that wear other IDs than their own: in struct pci_dev (sysfs, modalias, uevent, driver matching)
 * and in what is read from their config space (sysfs config, lspci -x, vfio-pci and thus a VM's guest).
 */
#ifndef FERRY_CONFIG_SPACE_H
#define FERRY_CONFIG_SPACE_H

/*
 * @requests: @count strings "DDDD:BB:SS.F=VVVV:DDDD:SVSV:SDSD:CCCCCC". A function that is present gets its
 * IDs before this returns; one that appears later gets them before any driver sees it. Returns 0 or -EINVAL
 * (malformed, named twice, or the function is a bridge), with everything as it was.
 */
int wear_ids(char **requests, unsigned int count);

/* Gives every function its own IDs back. Call only after wear_ids() succeeded. */
void restore_ids(void);

#endif
