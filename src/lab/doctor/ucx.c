/* SPDX-License-Identifier: Apache-2.0 */
/* See inner.h. */
#include "lab/doctor/inner.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/ucx/info.h"
#include "vb_config.h"

static void check_pmix(struct doctor *d)
{
	void *so = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL);
	const char *(*version)(void) = NULL;
	void *entry = so != NULL ? dlsym(so, "PMIx_Get_version") : NULL;
	const char *rank = getenv("PMIX_RANK");

	if (!VB_HAVE_PMIX) {
		doctor_say(
			d, rank != NULL ? DOCTOR_FAIL : DOCTOR_NONE, "pmix",
			"this verbena was built without PMIx's headers (Debian: libpmix-dev; build "
			"again): mpirun and srun cannot start a cluster, --procs, --hosts and "
			"--join can");
	} else if (entry != NULL) {
		const char *text, *more;

		memcpy(&version, &entry, sizeof(entry));
		/* "OpenPMIx 4.2.2 (PMIx Standard: ...)" */
		text = version();
		more = strstr(text, " (");
		doctor_say(d, DOCTOR_OK, "pmix", "%.*s; %s%s",
			   (int)(more != NULL ? more - text : 40), text,
			   rank != NULL ? "a launcher runs this as rank "
					: "no launcher (mpirun, srun) runs this",
			   rank != NULL ? rank : "");
	} else {
		doctor_say(
			d, rank != NULL ? DOCTOR_FAIL : DOCTOR_NONE, "pmix",
			"libpmix.so.2 is not installed (Debian: libpmix2): mpirun and srun cannot "
			"start a cluster, --procs, --hosts and --join can");
	}
	if (so != NULL)
		dlclose(so);
}

void doctor_ucx(struct doctor *d)
{
	struct ucx_info info;
	const char *why;

	if (ucx_info(&info, &why) != 0) {
		doctor_say(d, doctor_absent(d, "ucx"), "ucx", "%s", why);
	} else {
		doctor_say(d, DOCTOR_OK, "ucx library", "UCX %s; transports: %s", info.version,
			   info.transports[0] != '\0' ? info.transports
						      : "unknown (see ucx_info -d)");
		/* Not by the CPU, and patiently: it is not about a loaded machine's pace. */
		doctor_fabric(d, "ucx tcp", "ucx", "local=wire,tls=tcp,bound=1s,grace=1s");
	}
	check_pmix(d);
}
