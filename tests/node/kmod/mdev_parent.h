/* SPDX-License-Identifier: GPL-2.0 */
/* A function in /sys/class/mdev_bus: it offers the vGPU types of its GPU's board as mediated devices. */
#ifndef FERRY_MDEV_PARENT_H
#define FERRY_MDEV_PARENT_H

#include <linux/mdev.h>
#include <linux/pci.h>

#include "gpu.h"

struct mdev_gpu_parent;

/* @most: vGPUs that @pdev may carry, 0 for no bound. Returns an ERR_PTR on failure. */
struct mdev_gpu_parent *offer_mdevs(struct gpu *gpu, struct pci_dev *pdev, unsigned int most);

/* Destroys all mediated devices of the parent; waits for VMs that have one. */
void withdraw_mdevs(struct mdev_gpu_parent *parent);

const struct vgpu_spec *spec_of(struct mdev_type *type);
struct place *place_of(struct mdev_type *type);

#endif
