// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "roles.h"

#include <linux/module.h>

#include "address.h"

#define MOST 16

#define ROLE_PARAMETER(name, what)                                                                           \
	static char *name[MOST];                                                                             \
	static unsigned int num_##name;                                                                      \
	module_param_array(name, charp, &num_##name, 0444);                                                  \
	MODULE_PARM_DESC(name, "DDDD:BB:SS.F,...: functions that driver " what)

ROLE_PARAMETER(host, "nvidia takes without offering vGPU types");
ROLE_PARAMETER(vgpu, "nvidia takes and that offer vGPU types themselves");
ROLE_PARAMETER(sriov_mdev, "nvidia takes and whose virtual functions offer vGPU types");
ROLE_PARAMETER(sriov_vfio,
	       "nvidia takes and whose virtual functions become vGPUs by vendor-specific VFIO");
ROLE_PARAMETER(sriov_whole, "xe takes with its virtual functions");

struct assignment {
	struct pci_address address;
	enum role role;
};

static struct assignment assignments[5 * MOST];
static unsigned int num_assignments;

static int assign(char **addresses, unsigned int count, enum role role, const char *parameter)
{
	struct pci_address address;
	unsigned int i, j;

	for (i = 0; i < count; i++) {
		if (!parse_whole_address(addresses[i], &address)) {
			pr_err("%s: \"%s\" is not a PCI address DDDD:BB:SS.F\n", parameter, addresses[i]);
			return -EINVAL;
		}
		for (j = 0; j < num_assignments; j++)
			if (same_address(&assignments[j].address, &address)) {
				pr_err("%s: \"%s\" has two roles\n", parameter, addresses[i]);
				return -EINVAL;
			}
		assignments[num_assignments++] = (struct assignment){ address, role };
	}
	return 0;
}

int assign_roles(void)
{
	int ret = assign(host, num_host, ROLE_HOST, "host");

	if (!ret)
		ret = assign(vgpu, num_vgpu, ROLE_MDEV, "vgpu");
	if (!ret)
		ret = assign(sriov_mdev, num_sriov_mdev, ROLE_SRIOV_MDEV, "sriov_mdev");
	if (!ret)
		ret = assign(sriov_vfio, num_sriov_vfio, ROLE_SRIOV_VFIO, "sriov_vfio");
	if (!ret)
		ret = assign(sriov_whole, num_sriov_whole, ROLE_SRIOV_WHOLE, "sriov_whole");
	return ret;
}

enum role role_of(struct pci_dev *pdev)
{
	const struct pci_address address = address_of(pdev);
	unsigned int i;

	for (i = 0; i < num_assignments; i++)
		if (same_address(&assignments[i].address, &address))
			return assignments[i].role;
	return ROLE_NONE;
}
