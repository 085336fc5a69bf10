// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "faults.h"

#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/wait.h>

#include "address.h"

struct fault {
	bool armed;
	bool has_error; /* the parameter reads ADDRESS=ERRNO, not ADDRESS */
	struct pci_address address;
	int error; /* positive errno */
};

static struct fault fail_probe = { .has_error = true };
static struct fault fail_sriov = { .has_error = true };
static struct fault hang_probe;
static struct fault hang_remove;
static struct fault refuse_lock;

static DEFINE_SPINLOCK(fault_lock);
static DECLARE_WAIT_QUEUE_HEAD(fault_changed);

/* Empty (or blank) text disarms. */
static int parse_fault(char *text, struct fault *fault)
{
	const char *rest;

	if (*text == '\0')
		return 0;
	rest = parse_address(text, &fault->address);
	if (!rest)
		return -EINVAL;
	if (fault->has_error) {
		if (*rest != '=' || kstrtoint(rest + 1, 10, &fault->error) || fault->error < 1 ||
		    fault->error > MAX_ERRNO)
			return -EINVAL;
	} else if (*rest != '\0') {
		return -EINVAL;
	}
	fault->armed = true;
	return 0;
}

static int set_fault(const char *value, const struct kernel_param *kp)
{
	struct fault *fault = kp->arg;
	struct fault wanted = { .has_error = fault->has_error };
	char *copy = kstrdup(value, GFP_KERNEL);
	int ret;

	if (!copy)
		return -ENOMEM;
	ret = parse_fault(strim(copy), &wanted);
	if (ret)
		pr_err("%s: \"%s\" is not %s\n", kp->name, strim(copy),
		       fault->has_error ? "DDDD:BB:SS.F=ERRNO" : "DDDD:BB:SS.F");
	kfree(copy);
	if (ret)
		return ret;

	spin_lock(&fault_lock);
	*fault = wanted;
	spin_unlock(&fault_lock);
	wake_up_all(&fault_changed);
	return 0;
}

static int get_fault(char *buffer, const struct kernel_param *kp)
{
	const struct fault *fault = kp->arg;
	struct fault now;

	spin_lock(&fault_lock);
	now = *fault;
	spin_unlock(&fault_lock);
	if (!now.armed)
		return sysfs_emit(buffer, "\n");
	if (now.has_error)
		return sysfs_emit(buffer, PCI_ADDRESS_FORMAT "=%d\n", PCI_ADDRESS_ARGS(&now.address),
				  now.error);
	return sysfs_emit(buffer, PCI_ADDRESS_FORMAT "\n", PCI_ADDRESS_ARGS(&now.address));
}

static const struct kernel_param_ops fault_ops = { .set = set_fault, .get = get_fault };

module_param_cb(fail_probe, &fault_ops, &fail_probe, 0644);
MODULE_PARM_DESC(
	fail_probe,
	"DDDD:BB:SS.F=ERRNO: the next bind of this function to driver nvidia fails so; then empty again");
module_param_cb(fail_sriov, &fault_ops, &fail_sriov, 0644);
MODULE_PARM_DESC(fail_sriov, "DDDD:BB:SS.F=ERRNO: the next write to sriov_numvfs fails so; then empty again");
module_param_cb(hang_probe, &fault_ops, &hang_probe, 0644);
MODULE_PARM_DESC(hang_probe,
		 "DDDD:BB:SS.F: binding this function to driver nvidia hangs until this is cleared");
module_param_cb(hang_remove, &fault_ops, &hang_remove, 0644);
MODULE_PARM_DESC(hang_remove,
		 "DDDD:BB:SS.F: unbinding this function from driver nvidia hangs until this is cleared");

module_param_cb(refuse_lock, &fault_ops, &refuse_lock, 0644);
MODULE_PARM_DESC(refuse_lock, "DDDD:BB:SS.F: the unbind lock of this function is not given");

static bool is_armed_for(const struct fault *fault, const struct pci_address *address)
{
	bool armed;

	spin_lock(&fault_lock);
	armed = fault->armed && same_address(&fault->address, address);
	spin_unlock(&fault_lock);
	return armed;
}

static void hang_while_armed(const struct fault *fault, struct pci_dev *pdev, const char *where)
{
	const struct pci_address address = address_of(pdev);

	if (!is_armed_for(fault, &address))
		return;
	pci_info(pdev, KBUILD_MODNAME ": hangs in %s\n", where);
	wait_event(fault_changed, !is_armed_for(fault, &address));
	pci_info(pdev, KBUILD_MODNAME ": goes on in %s\n", where);
}

/* The negative errno of a fault that is armed for @pdev, which disarms it; else 0. */
static int spend(struct fault *fault, struct pci_dev *pdev)
{
	const struct pci_address address = address_of(pdev);
	int ret = 0;

	spin_lock(&fault_lock);
	if (fault->armed && same_address(&fault->address, &address)) {
		fault->armed = false;
		ret = -fault->error;
	}
	spin_unlock(&fault_lock);
	return ret;
}

int fault_in_probe(struct pci_dev *pdev)
{
	hang_while_armed(&hang_probe, pdev, "probe");
	return spend(&fail_probe, pdev);
}

void fault_in_remove(struct pci_dev *pdev)
{
	hang_while_armed(&hang_remove, pdev, "remove");
}

int fault_in_sriov(struct pci_dev *pdev)
{
	return spend(&fail_sriov, pdev);
}

bool fault_in_lock(struct pci_dev *pdev)
{
	const struct pci_address address = address_of(pdev);

	return is_armed_for(&refuse_lock, &address);
}
