\set w random(1, :warehouses)
\set d random(1, 10)
\set carrier random(1, 10)
SELECT delivery(:w, :d, :carrier);
