/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The PCI driver "nvidia". A function that parameter vgpu names becomes a parent of vGPUs when it is bound;
 * one that parameter host names is bound and nothing more.
 */
#ifndef FERRY_VGPU_PARENT_H
#define FERRY_VGPU_PARENT_H

#include <linux/mdev.h>
#include <linux/pci.h>

struct vgpu_spec;

/* Addresses "DDDD:BB:SS.F". -EINVAL if one is malformed or in both lists. */
int register_nvidia_driver(char **vgpu, unsigned int num_vgpu, char **host, unsigned int num_host);
void unregister_nvidia_driver(void);

const struct vgpu_spec *vgpu_spec_of(struct mdev_type *type);
struct pci_dev *gpu_of(struct mdev_type *type);

/* How many vGPUs of @type can be created now. */
unsigned int available_vgpus(struct mdev_type *type);

/* Takes the framebuffer of one vGPU. -EINVAL, NVIDIA's answer, if none can be created now. */
int reserve_vgpu(struct mdev_type *type);
void release_vgpu(struct mdev_type *type);

#endif
