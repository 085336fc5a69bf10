// SPDX-License-Identifier: GPL-2.0
/*
 * ferry_testgpu: makes emulated PCI devices of the virtual GPU node look and behave like a vendor's GPUs.
 * Parameters: README.md.
 */
#include <linux/module.h>

#include "config_space.h"
#include "vgpu_device.h"
#include "vgpu_parent.h"

static char *ids[64];
static unsigned int num_ids;
module_param_array(ids, charp, &num_ids, 0444);
MODULE_PARM_DESC(ids, "DDDD:BB:SS.F=VVVV:DDDD:SVSV:SDSD:CCCCCC,...: IDs that functions shall wear");

static char *vgpu[16];
static unsigned int num_vgpu;
module_param_array(vgpu, charp, &num_vgpu, 0444);
MODULE_PARM_DESC(vgpu, "DDDD:BB:SS.F,...: functions that driver nvidia takes and that offer vGPU types");

static char *host[16];
static unsigned int num_host;
module_param_array(host, charp, &num_host, 0444);
MODULE_PARM_DESC(host, "DDDD:BB:SS.F,...: functions that driver nvidia takes without offering vGPU types");

static int __init ferry_testgpu_init(void)
{
	int ret;

	ret = wear_ids(ids, num_ids);
	if (ret)
		return ret;
	ret = mdev_register_driver(&vgpu_mdev_driver);
	if (ret)
		goto restore;
	ret = register_nvidia_driver(vgpu, num_vgpu, host, num_host);
	if (ret)
		goto unregister_mdev;
	return 0;

unregister_mdev:
	mdev_unregister_driver(&vgpu_mdev_driver);
restore:
	restore_ids();
	return ret;
}
module_init(ferry_testgpu_init);

static void __exit ferry_testgpu_exit(void)
{
	unregister_nvidia_driver();
	mdev_unregister_driver(&vgpu_mdev_driver);
	restore_ids();
}
module_exit(ferry_testgpu_exit);

MODULE_DESCRIPTION("Emulated PCI devices in the guise of GPUs with vGPU support, for tests");
MODULE_LICENSE("GPL");
