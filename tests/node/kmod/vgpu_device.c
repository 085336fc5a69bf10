// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "vgpu_device.h"

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/vfio.h>

#include "gpu.h"
#include "mdev_parent.h"
#include "vgpu_pci.h"

#define PARAMS_SIZE 256

struct vgpu {
	struct vfio_device vdev;
	struct mdev_type *type;
	struct vgpu_pci pci;
	unsigned int placement; /* under the GPU's lock */
	struct mutex lock; /* the members below; taken before the GPU's */
	bool open;
	char params[PARAMS_SIZE];
};

static struct vgpu *to_vgpu(struct vfio_device *vdev)
{
	return container_of(vdev, struct vgpu, vdev);
}

static struct gpu *gpu_of(struct vgpu *vgpu)
{
	return place_of(vgpu->type)->gpu;
}

static int vgpu_init(struct vfio_device *vdev)
{
	struct vgpu *vgpu = to_vgpu(vdev);

	vgpu->type = to_mdev_device(vdev->dev)->type;
	mutex_init(&vgpu->lock);
	return init_vgpu_pci(&vgpu->pci, gpu_of(vgpu)->pdev->device, spec_of(vgpu->type)->subsystem_device);
}

static void vgpu_free(struct vfio_device *vdev)
{
	free_vgpu_pci(&to_vgpu(vdev)->pci);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0) /* later kernels free it themselves */
	vfio_free_device(vdev);
#endif
}

static int vgpu_open(struct vfio_device *vdev)
{
	struct vgpu *vgpu = to_vgpu(vdev);
	struct gpu *gpu = gpu_of(vgpu);
	int ret;

	mutex_lock(&gpu->lock);
	ret = open_vgpu_locked(gpu);
	mutex_unlock(&gpu->lock);
	if (ret)
		return ret;
	mutex_lock(&vgpu->lock);
	vgpu->open = true;
	mutex_unlock(&vgpu->lock);
	reset_vgpu_pci(&vgpu->pci);
	return 0;
}

static void vgpu_close(struct vfio_device *vdev)
{
	struct vgpu *vgpu = to_vgpu(vdev);
	struct gpu *gpu = gpu_of(vgpu);

	mutex_lock(&vgpu->lock);
	vgpu->open = false;
	mutex_unlock(&vgpu->lock);
	mutex_lock(&gpu->lock);
	close_vgpu_locked(gpu);
	mutex_unlock(&gpu->lock);
}

static ssize_t vgpu_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	return read_vgpu_pci(&to_vgpu(vdev)->pci, buf, count, ppos);
}

static ssize_t vgpu_write(struct vfio_device *vdev, const char __user *buf, size_t count, loff_t *ppos)
{
	return write_vgpu_pci(&to_vgpu(vdev)->pci, buf, count, ppos);
}

static long vgpu_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	return vgpu_pci_ioctl(&to_vgpu(vdev)->pci, cmd, arg);
}

static const struct vfio_device_ops vgpu_ops = {
	.name = "nvidia-vgpu-vfio",
	.init = vgpu_init,
	.release = vgpu_free,
	.open_device = vgpu_open,
	.close_device = vgpu_close,
	.read = vgpu_read,
	.write = vgpu_write,
	.ioctl = vgpu_ioctl,
};

static int take_room(struct mdev_type *type)
{
	struct place *place = place_of(type);
	int placement;

	mutex_lock(&place->gpu->lock);
	placement = take_room_locked(place, spec_of(type));
	mutex_unlock(&place->gpu->lock);
	return placement < 0 ? -EINVAL : placement; /* NVIDIA's answer */
}

static void give_room_back(struct mdev_type *type, unsigned int placement)
{
	struct place *place = place_of(type);

	mutex_lock(&place->gpu->lock);
	give_room_back_locked(place, placement);
	mutex_unlock(&place->gpu->lock);
}

static int vgpu_probe(struct mdev_device *mdev)
{
	int placement = take_room(mdev->type);
	struct vgpu *vgpu;
	int ret;

	if (placement < 0)
		return placement;
	vgpu = vfio_alloc_device(vgpu, vdev, &mdev->dev, &vgpu_ops);
	if (IS_ERR(vgpu)) {
		ret = PTR_ERR(vgpu);
		goto give_back;
	}
	vgpu->placement = placement;
	ret = vfio_register_emulated_iommu_dev(&vgpu->vdev);
	if (ret)
		goto put;
	dev_set_drvdata(&mdev->dev, vgpu);
	return 0;

put:
	vfio_put_device(&vgpu->vdev);
give_back:
	give_room_back(mdev->type, placement);
	return ret;
}

static void vgpu_remove(struct mdev_device *mdev)
{
	struct vgpu *vgpu = dev_get_drvdata(&mdev->dev);
	const unsigned int placement = vgpu->placement;

	vfio_unregister_group_dev(&vgpu->vdev);
	vfio_put_device(&vgpu->vdev);
	give_room_back(mdev->type, placement);
}

static unsigned int available_vgpus(struct mdev_type *type)
{
	return room_at(place_of(type), spec_of(type));
}

static ssize_t show_description(struct mdev_type *type, char *buf)
{
	const struct vgpu_spec *spec = spec_of(type);

	return sysfs_emit(
		buf, "num_heads=%u, frl_config=%u, framebuffer=%uM, max_resolution=%s, max_instance=%u\n",
		spec->num_heads, spec->frame_rate_limit, spec->framebuffer_mib, spec->max_resolution,
		spec->max_instance);
}

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vgpu *vgpu = dev_get_drvdata(dev);
	ssize_t ret;

	mutex_lock(&vgpu->lock);
	ret = sysfs_emit(buf, "%s\n", vgpu->params);
	mutex_unlock(&vgpu->lock);
	return ret;
}

/* A blank clears. A VM got its parameters when it started, so they cannot change while it runs. */
static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr, const char *buf,
				 size_t count)
{
	struct vgpu *vgpu = dev_get_drvdata(dev);
	char text[PARAMS_SIZE];
	ssize_t ret = count;

	if (count >= sizeof(text))
		return -EINVAL;
	strscpy(text, buf, sizeof(text));
	mutex_lock(&vgpu->lock);
	if (vgpu->open)
		ret = -EPERM;
	else
		strscpy(vgpu->params, strim(text), sizeof(vgpu->params));
	mutex_unlock(&vgpu->lock);
	return ret;
}
static DEVICE_ATTR_RW(vgpu_params);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vgpu *vgpu = dev_get_drvdata(dev);
	struct gpu *gpu = gpu_of(vgpu);
	unsigned int placement;

	mutex_lock(&gpu->lock);
	placement = vgpu->placement;
	mutex_unlock(&gpu->lock);
	return gpu->board->has_placements ? sysfs_emit(buf, "%u\n", placement) : -ENXIO;
}

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attr, const char *buf,
				  size_t count)
{
	struct vgpu *vgpu = dev_get_drvdata(dev);
	struct gpu *gpu = gpu_of(vgpu);
	unsigned int wanted;
	int ret;

	if (kstrtouint(buf, 10, &wanted))
		return -EINVAL;
	if (!gpu->board->has_placements)
		return -ENXIO;
	mutex_lock(&vgpu->lock);
	mutex_lock(&gpu->lock);
	ret = vgpu->open ? -EPERM :
			   move_placement_locked(gpu, spec_of(vgpu->type), vgpu->placement, wanted);
	if (!ret)
		vgpu->placement = wanted;
	mutex_unlock(&gpu->lock);
	mutex_unlock(&vgpu->lock);
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(placement_id);

static struct attribute *vgpu_attrs[] = {
	&dev_attr_placement_id.attr,
	&dev_attr_vgpu_params.attr,
	NULL,
};

static const struct attribute_group vgpu_group = {
	.name = "nvidia",
	.attrs = vgpu_attrs,
};

static const struct attribute_group *vgpu_groups[] = {
	&vgpu_group,
	NULL,
};

struct mdev_driver vgpu_mdev_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = vgpu_probe,
	.remove = vgpu_remove,
	.get_available = available_vgpus,
	.show_description = show_description,
	.driver = {
		.name = "nvidia-vgpu-vfio",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
		.dev_groups = vgpu_groups,
	},
};
