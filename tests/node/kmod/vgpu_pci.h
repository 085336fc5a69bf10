/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The PCI display device that a VM sees of a vGPU which is a mediated device: its IDs, one memory BAR that
 * holds what is written to it, reset; no interrupts and no capabilities.
 */
#ifndef FERRY_VGPU_PCI_H
#define FERRY_VGPU_PCI_H

#include <linux/mutex.h>
#include <linux/types.h>

#define VGPU_CONFIG_SIZE 256
#define VGPU_REVISION 0xa1

struct vgpu_pci {
	u16 device; /* 10de:<device>, subsystem 10de:<subsystem_device> */
	u16 subsystem_device;
	struct mutex lock; /* the members below */
	u8 config[VGPU_CONFIG_SIZE];
	u8 writable[VGPU_CONFIG_SIZE]; /* the bits of config that the VM may change */
	u8 *bar0;
};

/* -ENOMEM, or 0; undone by free_vgpu_pci(). */
int init_vgpu_pci(struct vgpu_pci *pci, u16 device, u16 subsystem_device);
void free_vgpu_pci(struct vgpu_pci *pci);
void reset_vgpu_pci(struct vgpu_pci *pci);

/* As of struct vfio_device_ops. */
ssize_t read_vgpu_pci(struct vgpu_pci *pci, char __user *buf, size_t count, loff_t *ppos);
ssize_t write_vgpu_pci(struct vgpu_pci *pci, const char __user *buf, size_t count, loff_t *ppos);
long vgpu_pci_ioctl(struct vgpu_pci *pci, unsigned int cmd, unsigned long arg);

#endif
