// SPDX-License-Identifier: GPL-2.0
/* The folder nvidia/ of a VF. What each file answers: README.md. */
#include <linux/sysfs.h>

#include "vendor_vfio.h"

/* What NVIDIA's resource manager calls a GPU instance that there is none of. */
#define NO_GPU_INSTANCE 0xffffffffu

static struct vendor_vf *lock_vf(struct device *dev)
{
	struct vendor_vf *vf = vendor_vf_of(to_pci_dev(dev));

	mutex_lock(&vf->place.gpu->lock);
	return vf;
}

static void unlock_vf(struct vendor_vf *vf)
{
	mutex_unlock(&vf->place.gpu->lock);
}

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vendor_vf *vf = lock_vf(dev);
	const unsigned int id = vf->spec ? vf->spec->id : 0;

	unlock_vf(vf);
	return sysfs_emit(buf, "%u\n", id);
}

static int delete_locked(struct vendor_vf *vf)
{
	if (!vf->spec)
		return 0;
	give_room_back_locked(&vf->place, vf->placement);
	vf->spec = NULL;
	vf->params[0] = '\0';
	return 0;
}

static int create_locked(struct vendor_vf *vf, unsigned int id)
{
	const struct vgpu_spec *spec = find_spec(vf->place.gpu->board, id);
	int placement;

	if (!spec)
		return -EINVAL;
	placement = take_room_locked(&vf->place, spec); /* never where the VF has one */
	if (placement < 0)
		return -EIO;
	vf->spec = spec;
	vf->placement = placement;
	return 0;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attr, const char *buf,
				       size_t count)
{
	struct vendor_vf *vf;
	unsigned int id;
	int ret = kstrtouint(buf, 10, &id);

	if (ret)
		return -EINVAL;
	vf = lock_vf(dev);
	if (vf->open)
		ret = -EPERM;
	else
		ret = id ? create_locked(vf, id) : delete_locked(vf);
	unlock_vf(vf);
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vendor_vf *vf = lock_vf(dev);
	const struct board *board = vf->place.gpu->board;
	ssize_t length = sysfs_emit(buf, "ID    : vGPU Name\n");
	unsigned int i;

	for (i = 0; i < board->num_specs; i++)
		if (room_locked(&vf->place, &board->specs[i]))
			length += sysfs_emit_at(buf, length, "%-5u : %s\n", board->specs[i].id,
						board->specs[i].name);
	unlock_vf(vf);
	return length;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vendor_vf *vf = lock_vf(dev);
	const bool exists = vf->spec;

	unlock_vf(vf);
	return exists ? sysfs_emit(buf, "%u\n", NO_GPU_INSTANCE) : -ENXIO;
}
static DEVICE_ATTR_RO(gpu_instance_id);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vendor_vf *vf = lock_vf(dev);
	const bool has_one = vf->spec && vf->place.gpu->board->has_placements;
	const unsigned int placement = vf->placement;

	unlock_vf(vf);
	return has_one ? sysfs_emit(buf, "%u\n", placement) : -ENXIO;
}

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attr, const char *buf,
				  size_t count)
{
	struct vendor_vf *vf;
	unsigned int wanted;
	int ret;

	if (kstrtouint(buf, 10, &wanted))
		return -EINVAL;
	vf = lock_vf(dev);
	if (!vf->spec || !vf->place.gpu->board->has_placements)
		ret = -ENXIO;
	else if (vf->open)
		ret = -EPERM;
	else
		ret = move_placement_locked(vf->place.gpu, vf->spec, vf->placement, wanted);
	if (!ret)
		vf->placement = wanted;
	unlock_vf(vf);
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(placement_id);

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct vendor_vf *vf = lock_vf(dev);
	const ssize_t ret = vf->spec ? sysfs_emit(buf, "%s\n", vf->params) : -ENXIO;

	unlock_vf(vf);
	return ret;
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr, const char *buf,
				 size_t count)
{
	char text[VGPU_PARAMS_SIZE];
	struct vendor_vf *vf;
	ssize_t ret = count;

	if (count >= sizeof(text))
		return -EINVAL;
	strscpy(text, buf, sizeof(text));
	vf = lock_vf(dev);
	if (!vf->spec)
		ret = -ENXIO;
	else if (vf->open)
		ret = -EPERM;
	else
		strscpy(vf->params, strim(text), sizeof(vf->params));
	unlock_vf(vf);
	return ret;
}
static DEVICE_ATTR_RW(vgpu_params);

static struct attribute *vendor_attrs[] = {
	&dev_attr_current_vgpu_type.attr, &dev_attr_creatable_vgpu_types.attr, &dev_attr_gpu_instance_id.attr,
	&dev_attr_placement_id.attr,	  &dev_attr_vgpu_params.attr,	       NULL,
};

const struct attribute_group vendor_group = {
	.name = "nvidia",
	.attrs = vendor_attrs,
};
