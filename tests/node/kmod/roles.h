/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What driver nvidia does with which function: the module's parameters vgpu, sriov_mdev, sriov_vfio, host. And which
 * functions driver xe takes: sriov_whole.
 */
#ifndef FERRY_ROLES_H
#define FERRY_ROLES_H

#include <linux/pci.h>

enum role {
	ROLE_NONE, /* not taken */
	ROLE_HOST, /* taken, and nothing else */
	ROLE_MDEV, /* vGPUs are mediated devices of the function itself */
	ROLE_SRIOV_MDEV, /* ... of its VFs */
	ROLE_SRIOV_VFIO, /* vGPUs are its VFs, by attributes of the driver's own */
	ROLE_SRIOV_WHOLE, /* of driver xe: VMs get its VFs whole */
};

/* Reads the parameters. -EINVAL, with a line in the log, if an address is malformed or has two roles. */
int assign_roles(void);

/* Of a physical function. */
enum role role_of(struct pci_dev *pdev);

#endif
