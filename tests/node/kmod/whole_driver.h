/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The PCI driver "xe", for functions with the role ROLE_SRIOV_WHOLE (roles.h) and for their virtual functions, which
 * come and go by sriov_numvfs and have no vGPU types.
 */
#ifndef FERRY_WHOLE_DRIVER_H
#define FERRY_WHOLE_DRIVER_H

int register_whole_driver(void);
void unregister_whole_driver(void);

#endif
