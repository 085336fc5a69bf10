// SPDX-License-Identifier: GPL-2.0
/*
 * ferry_testgpu: makes emulated PCI devices of the virtual GPU node look and behave like a vendor's GPUs.
 * What it does of what NVIDIA's vGPU host driver does; where it differs, and the parameters: README.md.
 *
 * Mediated devices, on the GPU or on its virtual functions (mdev_parent.c, vgpu_device.c)
 *   mdev_supported_types/nvidia-<id>/{name,available_instances,device_api,description,create,devices}; one
 *   vGPU on a VF; EINVAL for what has no room, EEXIST for a UUID that is used anywhere, ENODEV once the
 *   parent goes.
 * SR-IOV (nvidia_driver.c)
 *   sriov_numvfs from 0 to N and back; ERANGE, EBUSY, ENOENT are the kernel's; EPERM for a GPU that makes no
 *   VFs whatever its sriov_totalvfs (T4). The VFs come bound to the driver, and go with its binding.
 * The unbind lock (unbind_lock.c)
 *   /proc/driver/nvidia/gpus/<GPU>/unbindLock: the write succeeds whether the lock was given or not.
 * Vendor-specific VFIO (vendor_vfio.c, vendor_attributes.c)
 *   <VF>/nvidia/: current_vgpu_type: an id makes a vGPU, 0 ends it; EPERM while a VM has it, EIO for what has
 *   no room (another size, a full GPU, a VF that has one), EINVAL for an id that the board has not; what
 *   failed reads as before. creatable_vgpu_types: a header, then those that have room. gpu_instance_id,
 *   placement_id, vgpu_params: ENXIO without a vGPU. No such folder on the GPU itself.
 * Virtual functions that VMs get whole (whole_driver.c)
 *   driver xe makes them by sriov_numvfs and takes them, unless sriov_drivers_autoprobe is 0.
 * What has room (gpu.c)
 *   All vGPUs of a GPU, on whichever of its functions, have one framebuffer size; fewer than the maximum of
 *   the type exist, of whatever type; the VF has none. The last one to go frees the size.
 */
#include <linux/module.h>

#include "costume.h"
#include "nvidia_driver.h"
#include "vgpu_device.h"
#include "whole_driver.h"

static char *ids[64];
static unsigned int num_ids;
module_param_array(ids, charp, &num_ids, 0444);
MODULE_PARM_DESC(ids, "DDDD:BB:SS.F=VVVV:DDDD:SVSV:SDSD:CCCCCC,...: IDs that functions shall wear");

static int __init ferry_testgpu_init(void)
{
	int ret;

	ret = wear_ids(ids, num_ids);
	if (ret)
		return ret;
	ret = mdev_register_driver(&vgpu_mdev_driver);
	if (ret)
		goto restore;
	ret = register_nvidia_driver();
	if (ret)
		goto unregister_mdev;
	ret = register_whole_driver();
	if (ret)
		goto unregister_nvidia;
	return 0;

unregister_nvidia:
	unregister_nvidia_driver();
unregister_mdev:
	mdev_unregister_driver(&vgpu_mdev_driver);
restore:
	restore_ids();
	return ret;
}
module_init(ferry_testgpu_init);

static void __exit ferry_testgpu_exit(void)
{
	unregister_whole_driver();
	unregister_nvidia_driver();
	mdev_unregister_driver(&vgpu_mdev_driver);
	restore_ids();
}
module_exit(ferry_testgpu_exit);

MODULE_DESCRIPTION("Emulated PCI devices in the guise of GPUs with vGPU support, for tests");
MODULE_LICENSE("GPL");
