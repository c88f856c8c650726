"""The application behind ``attsvm fit``: train on a labelled problem and compare with its Att-SVM."""
