;; What the module of Ruby imports to give its objects out by handles. Here an object's address is its handle.
(module
  (func (export "resource_drop_js-abi-value") (param i32) unreachable)
  (func (export "resource_new_rb-abi-value") (param i32) (result i32) local.get 0)
  (func (export "resource_get_rb-abi-value") (param i32) (result i32) local.get 0)
)
