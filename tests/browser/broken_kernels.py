"""Kernels of ggml-webgpu with one constant changed: GPUs that compute something else, without an error.

Counterpart: gpu_wrapper.py, which changes shaders on their way to the browser: no second build is needed.
"""

from tests.browser.gpu_wrapper import ShaderEdit

Q4_K_VECTOR = ShaderEdit(find="sc0 & 0x3F3Fu", replace="sc0 & 0x1F1Fu")
"""mul_mat_vec of Q4_K (and Q5_K): the highest bit of a block's first scales is lost. One to a few columns."""

Q4_K_TILE = ShaderEdit(find="= sc_byte & 63u", replace="= sc_byte & 31u")
"""The same in the products of many columns."""
