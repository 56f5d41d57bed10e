/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzzer is without libFuzzer: it runs the inputs of a folder, once each. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	uint8_t *data = malloc(INPUT_MAX), *exact;
	FILE *f = fopen(path, "rb");
	size_t n;

	if (data == NULL || f == NULL) {
		perror(path);
		exit(1);
	}
	n = fread(data, 1, INPUT_MAX, f);
	fclose(f);
	exact = malloc(n > 0 ? n : 1); /* as long as it is, for the address sanitizer */
	if (exact == NULL)
		exit(1);
	memcpy(exact, data, n);
	free(data);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
	return 1;
}

int main(int argc, char **argv)
{
	char path[4096];
	struct dirent *e;
	int n = 0;
	DIR *d = argc == 2 ? opendir(argv[1]) : NULL;

	if (d == NULL) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 1;
	}
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
		n += replay(path);
	}
	closedir(d);
	/* A folder without inputs would test nothing. */
	printf("%d inputs\n", n);
	return n > 0 ? 0 : 1;
}
