-- An operator may decide on the standard of a contract that the node gives no answer about.
ALTER TABLE tds.contract_standards
  DROP CONSTRAINT contract_standards_basis_check,
  ADD CONSTRAINT contract_standards_basis_check
    CHECK (basis IN ('abi', 'src5', 'decimals', 'nothing', 'operator'));
