/* SPDX-License-Identifier: GPL-2.0 */
/* One vGPU: a mediated device that VFIO hands to a VM as a PCI display device. */
#ifndef FERRY_VGPU_DEVICE_H
#define FERRY_VGPU_DEVICE_H

#include <linux/mdev.h>

extern struct mdev_driver vgpu_mdev_driver;

#endif
