/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that wear other IDs than their own: in struct pci_dev (sysfs, modalias, uevent, driver matching)
 * and in what is read from their config space (sysfs config, lspci -x, vfio-pci and thus a VM's guest).
 */
#ifndef FERRY_COSTUME_H
#define FERRY_COSTUME_H

#include <linux/pci.h>

#include "address.h"

struct ids {
	u16 vendor;
	u16 device;
	u16 subsystem_vendor;
	u16 subsystem_device;
	u32 class; /* base class, sub-class, programming interface: 24 bits, as in struct pci_dev */
};

struct costume {
	struct pci_address address;
	struct ids ids;
	struct ids own; /* valid while worn */
	struct pci_dev *wearer; /* valid while worn */
	bool wearer_is_vf;
	bool worn; /* read without a lock by config accesses; written last */
};

/*
 * @requests: @count strings "DDDD:BB:SS.F=VVVV:DDDD:SVSV:SDSD:CCCCCC". A function that is present gets its
 * IDs before this returns; one that appears later gets them before any driver sees it. So does a VF that is
 * not named and whose physical function is: the same IDs. Returns 0 or -EINVAL (malformed, named twice, or
 * the function is a bridge), with everything as it was.
 */
int wear_ids(char **requests, unsigned int count);

/* Gives every function its own IDs back. Call only after wear_ids() succeeded. */
void restore_ids(void);

/* NULL if nothing is worn at @address, now or at another time. Needs no lock. */
struct costume *costume_for(const struct pci_address *address);

#endif
