/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The PCI driver "nvidia". What it does with a function is the function's role (roles.h); virtual functions
 * have that of their physical function, and come and go by sriov_numvfs.
 */
#ifndef FERRY_NVIDIA_DRIVER_H
#define FERRY_NVIDIA_DRIVER_H

int register_nvidia_driver(void);
void unregister_nvidia_driver(void);

#endif
