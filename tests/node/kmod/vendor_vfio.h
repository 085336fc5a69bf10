/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Vendor-specific VFIO: a VF that is one vGPU or none, as its folder nvidia/ says, and that a VM is given as
 * a whole, through vfio-pci-core. The VM sees the vGPU's IDs.
 */
#ifndef FERRY_VENDOR_VFIO_H
#define FERRY_VENDOR_VFIO_H

#include <linux/pci.h>
#include <linux/vfio_pci_core.h>

#include "gpu.h"

#define VGPU_PARAMS_SIZE 256

struct vendor_vf {
	struct vfio_pci_core_device core; /* first: VFIO frees us by it */
	struct place place; /* the members from here on under the lock of its GPU */
	const struct vgpu_spec *spec; /* of the vGPU; NULL if there is none */
	unsigned int placement;
	bool open; /* a VM has it */
	char params[VGPU_PARAMS_SIZE];
};

int probe_vendor_vf(struct gpu *gpu, struct pci_dev *pdev);

/* Waits until no VM has it; its vGPU ends. */
void remove_vendor_vf(struct pci_dev *pdev);

/* Of a VF that probe_vendor_vf() took. */
struct vendor_vf *vendor_vf_of(struct pci_dev *pdev);

/* The folder nvidia/ of a VF (vendor_attributes.c). */
extern const struct attribute_group vendor_group;

#endif
