// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "vgpu_device.h"

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vfio.h>

#include "gpu.h"
#include "mdev_parent.h"

#define CONFIG_SIZE 256
#define BAR0_SIZE 0x4000
#define REVISION 0xa1
#define PARAMS_SIZE 256

/* The region's index is in the upper bits of a file offset, as in vfio-pci. */
#define REGION_SHIFT 40
#define REGION_OFFSET(index) ((u64)(index) << REGION_SHIFT)

struct vgpu {
	struct vfio_device vdev;
	struct mdev_type *type;
	struct mutex lock; /* the members below */
	bool open;
	unsigned int placement;
	char params[PARAMS_SIZE];
	u8 config[CONFIG_SIZE];
	u8 writable[CONFIG_SIZE]; /* the bits of config that the user may change */
	u8 *bar0;
};

struct region {
	u8 *data;
	size_t size;
};

static struct vgpu *to_vgpu(struct vfio_device *vdev)
{
	return container_of(vdev, struct vgpu, vdev);
}

static struct gpu *gpu_of(struct vgpu *vgpu)
{
	return place_of(vgpu->type)->gpu;
}

static struct region region_at(struct vgpu *vgpu, u32 index)
{
	switch (index) {
	case VFIO_PCI_CONFIG_REGION_INDEX:
		return (struct region){ vgpu->config, CONFIG_SIZE };
	case VFIO_PCI_BAR0_REGION_INDEX:
		return (struct region){ vgpu->bar0, BAR0_SIZE };
	default:
		return (struct region){ NULL, 0 };
	}
}

static void put_le16(u8 *bytes, u16 value)
{
	*(__le16 *)bytes = cpu_to_le16(value);
}

static void put_le32(u8 *bytes, u32 value)
{
	*(__le32 *)bytes = cpu_to_le32(value);
}

/* No interrupt pin and no capabilities: nothing here ever raises an interrupt. */
static void reset(struct vgpu *vgpu)
{
	const struct vgpu_spec *spec = spec_of(vgpu->type);

	memset(vgpu->config, 0, CONFIG_SIZE);
	put_le16(vgpu->config + PCI_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put_le16(vgpu->config + PCI_DEVICE_ID, gpu_of(vgpu)->pdev->device);
	put_le32(vgpu->config + PCI_CLASS_REVISION, PCI_CLASS_DISPLAY_VGA << 16 | REVISION);
	put_le32(vgpu->config + PCI_BASE_ADDRESS_0,
		 PCI_BASE_ADDRESS_SPACE_MEMORY | PCI_BASE_ADDRESS_MEM_TYPE_32);
	put_le16(vgpu->config + PCI_SUBSYSTEM_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put_le16(vgpu->config + PCI_SUBSYSTEM_ID, spec->subsystem_device);
	memset(vgpu->bar0, 0, BAR0_SIZE);
}

/* With the address bits of a BAR below its size fixed to zero, sizing it needs no code of its own. */
static void set_writable(struct vgpu *vgpu)
{
	put_le16(vgpu->writable + PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	put_le32(vgpu->writable + PCI_BASE_ADDRESS_0, ~(BAR0_SIZE - 1));
	vgpu->writable[PCI_CACHE_LINE_SIZE] = 0xff;
	vgpu->writable[PCI_INTERRUPT_LINE] = 0xff;
}

static int vgpu_init(struct vfio_device *vdev)
{
	struct vgpu *vgpu = to_vgpu(vdev);

	vgpu->bar0 = kzalloc(BAR0_SIZE, GFP_KERNEL);
	if (!vgpu->bar0)
		return -ENOMEM;
	vgpu->type = to_mdev_device(vdev->dev)->type;
	mutex_init(&vgpu->lock);
	set_writable(vgpu);
	reset(vgpu);
	return 0;
}

static void vgpu_free(struct vfio_device *vdev)
{
	kfree(to_vgpu(vdev)->bar0);
	vfio_free_device(vdev);
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
	reset(vgpu);
	mutex_unlock(&vgpu->lock);
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

/* Finds the bytes at @pos and cuts @count to what the region holds. NULL if there is nothing at @pos. */
static u8 *bytes_at(struct vgpu *vgpu, loff_t pos, size_t *count)
{
	const struct region region = region_at(vgpu, pos >> REGION_SHIFT);
	const u64 offset = pos & (REGION_OFFSET(1) - 1);

	if (offset >= region.size)
		return NULL;
	*count = min_t(size_t, *count, region.size - offset);
	return region.data + offset;
}

static ssize_t vgpu_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	struct vgpu *vgpu = to_vgpu(vdev);
	const u8 *from = bytes_at(vgpu, *ppos, &count);
	unsigned long left;

	if (!from)
		return -EINVAL;
	mutex_lock(&vgpu->lock);
	left = copy_to_user(buf, from, count);
	mutex_unlock(&vgpu->lock);
	if (left)
		return -EFAULT;
	*ppos += count;
	return count;
}

static ssize_t vgpu_write(struct vfio_device *vdev, const char __user *buf, size_t count, loff_t *ppos)
{
	struct vgpu *vgpu = to_vgpu(vdev);
	u8 *to = bytes_at(vgpu, *ppos, &count);
	u8 *data;
	size_t i;

	if (!to)
		return -EINVAL;
	data = memdup_user(buf, count);
	if (IS_ERR(data))
		return PTR_ERR(data);
	mutex_lock(&vgpu->lock);
	if (to >= vgpu->config && to < vgpu->config + CONFIG_SIZE) {
		const u8 *writable = vgpu->writable + (to - vgpu->config);

		for (i = 0; i < count; i++)
			to[i] = (to[i] & ~writable[i]) | (data[i] & writable[i]);
	} else {
		memcpy(to, data, count);
	}
	mutex_unlock(&vgpu->lock);
	kfree(data);
	*ppos += count;
	return count;
}

static long get_info(void __user *arg)
{
	const size_t size = offsetofend(struct vfio_device_info, num_irqs);
	struct vfio_device_info info;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size)
		return -EINVAL;
	info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
	info.num_regions = VFIO_PCI_NUM_REGIONS;
	info.num_irqs = VFIO_PCI_NUM_IRQS;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_region_info(struct vgpu *vgpu, void __user *arg)
{
	const size_t size = offsetofend(struct vfio_region_info, offset);
	struct vfio_region_info info;
	struct region region;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	region = region_at(vgpu, info.index);
	info.flags = region.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
	info.cap_offset = 0;
	info.size = region.size;
	info.offset = REGION_OFFSET(info.index);
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_irq_info(void __user *arg)
{
	const size_t size = offsetofend(struct vfio_irq_info, count);
	struct vfio_irq_info info;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info.flags = 0;
	info.count = 0;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long vgpu_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	struct vgpu *vgpu = to_vgpu(vdev);

	switch (cmd) {
	case VFIO_DEVICE_GET_INFO:
		return get_info((void __user *)arg);
	case VFIO_DEVICE_GET_REGION_INFO:
		return get_region_info(vgpu, (void __user *)arg);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return get_irq_info((void __user *)arg);
	case VFIO_DEVICE_SET_IRQS:
		return -EINVAL; /* there are none */
	case VFIO_DEVICE_RESET:
		mutex_lock(&vgpu->lock);
		reset(vgpu);
		mutex_unlock(&vgpu->lock);
		return 0;
	default:
		return -ENOTTY;
	}
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

static struct attribute *vgpu_attrs[] = {
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
