// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "unbind_lock.h"

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "faults.h"

static struct proc_dir_entry *driver_folder;
static struct proc_dir_entry *gpus_folder;

static int show_lock(struct seq_file *file, void *unused)
{
	struct gpu *gpu = file->private;

	seq_printf(file, "%d\n", holds_unbind_lock(gpu));
	return 0;
}

static int open_lock(struct inode *inode, struct file *file)
{
	return single_open(file, show_lock, pde_data(inode));
}

static ssize_t store_lock(struct file *file, const char __user *buf, size_t count, loff_t *ppos)
{
	struct gpu *gpu = pde_data(file_inode(file));
	unsigned int wanted;
	int ret = kstrtouint_from_user(buf, count, 10, &wanted);

	if (ret || wanted > 1)
		return -EINVAL;
	mutex_lock(&gpu->lock);
	if (!wanted)
		gpu->unbind_locked = false;
	else if (!gpu->num_open && !fault_in_lock(gpu->pdev))
		gpu->unbind_locked = true;
	pci_info(gpu->pdev, KBUILD_MODNAME ": %s\n",
		 !wanted ? "UnbindLock released"
			 : (gpu->unbind_locked ? "UnbindLock acquired" : "Could not acquire UnbindLock"));
	mutex_unlock(&gpu->lock);
	return count;
}

static const struct proc_ops lock_ops = {
	.proc_open = open_lock,
	.proc_read = seq_read,
	.proc_write = store_lock,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

int add_driver_folder(void)
{
	driver_folder = proc_mkdir("driver/nvidia", NULL);
	gpus_folder = driver_folder ? proc_mkdir("gpus", driver_folder) : NULL;
	if (gpus_folder)
		return 0;
	proc_remove(driver_folder);
	return -ENOMEM;
}

void remove_driver_folder(void)
{
	proc_remove(driver_folder);
}

int add_unbind_lock(struct gpu *gpu)
{
	gpu->proc = proc_mkdir(pci_name(gpu->pdev), gpus_folder);
	if (!gpu->proc || !proc_create_data("unbindLock", 0644, gpu->proc, &lock_ops, gpu)) {
		remove_unbind_lock(gpu);
		return -ENOMEM;
	}
	return 0;
}

void remove_unbind_lock(struct gpu *gpu)
{
	proc_remove(gpu->proc);
	gpu->proc = NULL;
}

bool holds_unbind_lock(struct gpu *gpu)
{
	bool held;

	mutex_lock(&gpu->lock);
	held = gpu->unbind_locked;
	mutex_unlock(&gpu->lock);
	return held;
}
