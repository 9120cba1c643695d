// What a program is told of the driver that it loads itself.
#pragma once

// scaffe_cuda_load fills the pointers of all functions from a library, and returns why it
// cannot. A function that the library lacks answers CUDA_ERROR_NOT_FOUND.
const char *scaffe_cuda_load(const char *name);
// scaffe_cuda_init is the library's own cuInit.
int scaffe_cuda_init(void);
// scaffe_cuda_unload makes all functions answer CUDA_ERROR_NO_DEVICE again.
void scaffe_cuda_unload(void);
